"""Chat messages and items: conversion, pairing of calls and results, repair."""
