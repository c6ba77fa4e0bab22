"""Tinytown's world: which words a slot can take, and which words belong together.

Chapters 1, 12 and 13. The words and lines of the stories are in `assets/tables/world.toml`, which also explains its
format. This module derives the classes and relations from them. `grammar` reads the lines, `stories` generates stories.
"""

from course_lib.course.files import read_table

PAGE = read_table("world")
STORY, MAX_SENTENCES, STOP = PAGE["story"], PAGE["max_sentences"], PAGE["stop"]
MEN, WOMEN = tuple(PAGE["people"]["men"]), tuple(PAGE["people"]["women"])
ROLES: dict[str, tuple[str, str, str]] = {role: tuple(traits) for role, traits in PAGE["roles"].items()}
ANIMAL_SOUNDS, CAPITALS, OPPOSITES = PAGE["sounds"], PAGE["capitals"], PAGE["opposites"]

# The sentence that we use throughout the course: each chapter shows its tensors for it. To answer it, a model has to
# know who chased whom. It needs word order, access to earlier words, and a way to distinguish the two animals.
SENTENCE = "once there was a king called tom . the dog chased the cow . who chased the cow ? it was the"


def _roles(trait: str) -> tuple[str, ...]:
    return tuple(role for role, traits in ROLES.items() if trait in traits)


def _by(trait: str, those, others) -> dict:
    """Return what belongs to each role: `those` for roles with this trait, `others` for the rest."""
    return {role: those if trait in traits else others for role, traits in ROLES.items()}


# A class is the set of words that a slot can take, all with the same probability unless weights are given.
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

# A relation maps a word to the word that belongs to it, or to several words to choose from.
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
