"""The cold routes: everything but the turns themselves."""
