"""Check a store: does what it holds keep the promises?"""
