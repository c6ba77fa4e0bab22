"""The type checker behind the import hook of conftest.py. As in the rules of typing, an int is welcome as a float."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
