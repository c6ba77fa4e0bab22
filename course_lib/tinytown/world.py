"""Tinytown's world: which words a slot may draw, and what belongs to what.

Chapters 1, 12 and 13. The words and the lines of its stories stand on one page, `assets/tables/world.toml`, which says
how it is read; what follows from them is here. `grammar` reads the lines, `tinytown` tells stories from them.
"""

from course_lib.files import read_table

PAGE = read_table("world")
STORY, MAX_SENTENCES, STOP = PAGE["story"], PAGE["max_sentences"], PAGE["stop"]
MEN, WOMEN = tuple(PAGE["people"]["men"]), tuple(PAGE["people"]["women"])
ROLES: dict[str, tuple[str, str, str]] = {role: tuple(traits) for role, traits in PAGE["roles"].items()}
ANIMAL_SOUNDS, CAPITALS, OPPOSITES = PAGE["sounds"], PAGE["capitals"], PAGE["opposites"]

# The sentence that goes through the course: each chapter shows its own tensor on it. Whoever answers it must know who
# chased whom, so it needs order, a way to look back, and a way to tell the two animals apart.
SENTENCE = "once there was a king called tom . the dog chased the cow . who chased the cow ? it was the"


def _roles(trait: str) -> tuple[str, ...]:
    return tuple(role for role, traits in ROLES.items() if trait in traits)


def _by(trait: str, those, others) -> dict:
    """What belongs to each role: `those` to the roles with this trait, `others` to the rest."""
    return {role: those if trait in traits else others for role, traits in ROLES.items()}


# A class is the set of words a slot may draw. Equal chances, unless weights are given.
CLASSES: dict[str, tuple[str, ...] | dict[str, float]] = {
    **{name: words if isinstance(words, dict) else tuple(words) for name, words in PAGE["classes"].items()},
    **{trait: _roles(trait) for trait in ("royal", "common", "adult", "child")},
    "role": tuple(ROLES),
    "name": MEN + WOMEN,
    "animal": tuple(ANIMAL_SOUNDS),
    "animals": tuple(PAGE["plurals"].get(animal, animal + "s") for animal in ANIMAL_SOUNDS),
    "creature": (*ANIMAL_SOUNDS, *PAGE["people"]["professions"]),
    "attack": tuple(PAGE["attacks"]),
    "country": tuple(CAPITALS),
    "weather": tuple(PAGE["gear"]),
    "quality": (*OPPOSITES, *OPPOSITES.values()),
    "feeling": tuple(PAGE["reactions"]),
}

# A relation says what belongs to a word: one word, or a few to draw from.
RELATIONS: dict[str, dict] = {
    "name": _by("he", MEN, WOMEN),
    "pronoun": _by("he", "he", "she") | dict.fromkeys(MEN, "he") | dict.fromkeys(WOMEN, "she"),
    "possessive": _by("he", "his", "her"),
    "kind": dict.fromkeys(MEN, _roles("he")) | dict.fromkeys(WOMEN, _roles("she")),
    "home": _by("royal", CLASSES["royal_home"], CLASSES["common_home"]),
    "hat": _by("royal", ("crown", "diadem"), ("cap", "bonnet")),
    "duty": _by("child", "school", "work"),
    "sound": ANIMAL_SOUNDS,
    "capital": CAPITALS,
    "opposite": OPPOSITES | {right: left for left, right in OPPOSITES.items()},
    "act": PAGE["reactions"],
    "gear": PAGE["gear"],
    "base": PAGE["attacks"],
}
