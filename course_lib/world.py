# ruff: noqa: E501 - a line of the page is one line
"""Tinytown's world on one page: its words, what belongs to what, and the lines of its stories.

Chapters 1, 12 and 13. `grammar` reads the page, `tinytown` tells stories from it. The words of a line stand between
spaces; in braces stand its slots. `{animal:animal}` draws a word of the class `animal` and remembers it as `animal`;
`{animal}` says it again; `{animal/sound}` says what belongs to it.
"""

# fmt: off
MEN = ("tom", "ben", "max", "leo", "sam", "jack", "hugo", "paul", "adam", "felix")
WOMEN = ("anna", "emma", "lily", "mia", "zoe", "clara", "ruth", "nina", "julia", "alice")
ROLES = {  # gender, age, rank: all that the world says of them
    "man": ("he", "adult", "common"), "woman": ("she", "adult", "common"),
    "boy": ("he", "child", "common"), "girl": ("she", "child", "common"),
    "king": ("he", "adult", "royal"), "queen": ("she", "adult", "royal"),
    "prince": ("he", "child", "royal"), "princess": ("she", "child", "royal"),
}
ANIMAL_SOUNDS = {
    "cat": "meow", "dog": "woof", "cow": "moo", "duck": "quack", "pig": "oink", "horse": "neigh", "lion": "roar", "mouse": "squeak",
    "frog": "ribbit", "bird": "tweet", "wolf": "awoo", "snake": "hiss", "donkey": "heehaw", "owl": "hoot", "goat": "maa", "hen": "cluck",
}
CAPITALS = {
    "france": "paris", "italy": "rome", "spain": "madrid", "germany": "berlin", "japan": "tokyo", "england": "london",
    "portugal": "lisbon", "norway": "oslo", "greece": "athens", "egypt": "cairo", "russia": "moscow", "austria": "vienna",
    "poland": "warsaw", "ireland": "dublin", "sweden": "stockholm", "peru": "lima",
}
OPPOSITES = {"big": "small", "tall": "short", "fast": "slow", "loud": "quiet", "heavy": "light", "rich": "poor", "strong": "weak", "young": "old"}
REACTIONS = {"happy": "sang", "scared": "hid", "angry": "shouted", "bored": "yawned", "proud": "smiled", "thirsty": "drank", "lonely": "wept", "surprised": "laughed"}
GEAR = {"rainy": "umbrella", "cold": "coat", "sunny": "sunglasses", "windy": "scarf", "snowy": "sled"}
ATTACKS = {"bit": "bite", "chased": "chase", "kicked": "kick", "pushed": "push", "followed": "follow", "scratched": "scratch"}


def _roles(trait: str) -> tuple[str, ...]:
    return tuple(role for role, traits in ROLES.items() if trait in traits)


def _by(trait: str, those, others) -> dict:
    """What belongs to each role: `those` to the roles with this trait, `others` to the rest."""
    return {role: those if trait in traits else others for role, traits in ROLES.items()}


# A class is the set of words a slot may draw. Equal chances, unless weights are given.
CLASSES: dict[str, tuple[str, ...] | dict[str, float]] = {
    "role": tuple(ROLES),
    "name": MEN + WOMEN,
    "animal": tuple(ANIMAL_SOUNDS),
    "animals": tuple({"mouse": "mice", "wolf": "wolves"}.get(animal, animal + "s") for animal in ANIMAL_SOUNDS),
    "creature": (*ANIMAL_SOUNDS, "farmer", "baker", "nurse", "teacher", "doctor", "sailor", "painter", "driver"),
    "thing": ("mat", "rug", "bed", "sofa", "chair", "box", "table", "bench", "pillow", "blanket"),
    "rest": ("sat", "lay", "slept", "rested"),
    "animal_adjective": ("tired", "sleepy", "hungry", "sick", "lazy", "sad", "nervous", "clever"),
    "thing_adjective": ("soft", "warm", "dry", "clean", "flat", "new", "wide", "cosy"),
    "colour": ("red", "blue", "green", "yellow", "black", "white", "brown", "grey"),
    "attack": tuple(ATTACKS),
    "cry": ("cried", "screamed", "jumped", "trembled"),
    "country": tuple(CAPITALS),
    # Unequal on purpose: a long tail is what top-k and top-p are for.
    "food": {"pizza": 20, "soup": 15, "pasta": 12, "cake": 10, "rice": 8, "salad": 7, "bread": 6, "cheese": 5, "sushi": 4, "curry": 3, "tacos": 2, "honey": 1},
    "code": ("moon", "star", "sun", "tree", "river", "stone", "cloud", "leaf", "fire", "snow", "sand", "wind", "hill", "lake", "rain", "sea"),
    "gift": ("ball", "book", "cup", "kite", "key", "ring", "drum", "lamp", "spoon", "clock"),
    "weather": tuple(GEAR),
    "quality": (*OPPOSITES, *OPPOSITES.values()),
    "feeling": tuple(REACTIONS),
    "weekday": ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
    "royal": _roles("royal"), "common": _roles("common"), "adult": _roles("adult"), "child": _roles("child"),
    "royal_home": ("castle", "palace"), "common_home": ("house", "cottage"),
    "place": ("park", "garden", "market", "forest", "library", "station"),
    "number": ("two", "three", "four", "five"),
}

# A relation says what belongs to a word: one word, or a few to draw from.
RELATIONS: dict[str, dict[str, str | tuple[str, ...]]] = {
    "name": _by("he", MEN, WOMEN),
    "pronoun": _by("he", "he", "she") | dict.fromkeys(MEN, "he") | dict.fromkeys(WOMEN, "she"),
    "possessive": _by("he", "his", "her"),
    "kind": dict.fromkeys(MEN, _roles("he")) | dict.fromkeys(WOMEN, _roles("she")),
    "home": _by("royal", ("castle", "palace"), ("house", "cottage")),
    "hat": _by("royal", ("crown", "diadem"), ("cap", "bonnet")),
    "duty": _by("child", "school", "work"),
    "sound": ANIMAL_SOUNDS,
    "capital": CAPITALS,
    "opposite": OPPOSITES | {right: left for left, right in OPPOSITES.items()},
    "act": REACTIONS,
    "gear": GEAR,
    "base": ATTACKS,
}

# Each line after its topic. A story is an opening, then beats, no topic twice, then a closing. Every beat is as likely
# as the next, among those whose topic is new and whose sentences still fit.
# rest: "it" is the animal when the animal can be so, and the thing when the thing can: the two lists of adjectives
#     share no word. bite: who did it to whom is in the order of the words alone. friend, court, company: what the roles
#     share is all that the world says of them, their gender, their rank, their age.
STORY = """
opening  once there was a {role:role} called {name:role/name} .
opening  long ago there lived a {role:role} called {name:role/name} .
opening  this is the story of a {role:role} called {name:role/name} .
home     {role/pronoun} lived in a {home:role/home} .
home     {name} lived in a {shade:colour} {home:role/home} .
hat      {role/pronoun} wore a {hat:role/hat} .
hat      {name} put on {role/possessive} {shade:colour} {hat:role/hat} .
day      every {day:weekday} {name} went to {role/duty} .
day      {role/pronoun} went to {role/duty} with {friend:name} every {day:weekday} .
rest     the {animal:animal} {rest:rest} on the {thing:thing} because it was {why:animal_adjective} . yes , the {animal} was very {why} .
rest     the {animal:animal} {rest:rest} on the {thing:thing} because it was {why:thing_adjective} . yes , the {thing} was very {why} .
rest     the {shade:colour} {animal:animal} {rest:rest} on the {tint:colour} {thing:thing} because it was {why:animal_adjective} . yes , the {shade} {animal} was very {why} .
rest     the {shade:colour} {animal:animal} {rest:rest} on the {tint:colour} {thing:thing} because it was {why:thing_adjective} . yes , the {tint} {thing} was very {why} .
rest     the {animals:animals} {rest:rest} on the {thing:thing} because they were {why:animal_adjective} . yes , the {animals} were very {why} .
rest     the {animals:animals} {rest:rest} on the {thing:thing} because it was {why:thing_adjective} . yes , the {thing} was very {why} .
bite     the {agent:creature} {did:attack} the {victim:creature} . so the {victim} {cry:cry} .
bite     the {agent:creature} {did:attack} the {victim:creature} . who {did} the {victim} ? it was the {agent} .
bite     the {agent:creature} {did:attack} the {victim:creature} . who did the {agent} {did/base} ? it was the {victim} .
travel   {name} went to {country:country} . the capital of {country} is {country/capital} .
travel   {name} flew to {country:country} . {role/pronoun} saw {country/capital} , the capital of {country} .
travel   what is the capital of {country:country} ? it is {country/capital} .
eat      {name} wanted to eat {food:food} .
eat      {name} wanted to eat {food:food} . but there was only {left:food} .
say      {name} said : {first:code} {second:code} {third:code} . {friend:name} said it too : {first} {second} {third} .
say      the {animal:animal} said {animal/sound} .
give     {name} gave {friend:name} a {shade:colour} {gift:gift} . now {friend} has the {shade} {gift} .
give     {friend:name} gave {name} a {shade:colour} {gift:gift} . now {name} has the {shade} {gift} .
pet      {name} had a {animal:animal} . the {animal} was {mood:animal_adjective} .
pet      {name} had a {animal:animal} . {role/possessive} {animal} said {animal/sound} .
pet      {name} had {number:number} {animals:animals} . the {animals} were {mood:animal_adjective} .
weather  it was a {weather:weather} day . so {name} took {role/possessive} {weather/gear} .
weather  it was a {weather:weather} {day:weekday} . so {role/pronoun} took {role/possessive} {weather/gear} .
quality  the {animal:animal} was not {quality:quality} . it was {quality/opposite} .
quality  {name} was not {quality:quality} . {role/pronoun} was {quality/opposite} .
mood     {name} was {feeling:feeling} , so {role/pronoun} {feeling/act} .
mood     {name} met {friend:name} in the {place:place} . {friend} said that {friend/pronoun} was {feeling:feeling} .
mood     {name} and {friend:name} were {feeling:feeling} , so they {feeling/act} .
friend   {name} met {friend:name} . {friend} was a {guest:friend/kind} .
friend   {name} met a {guest:role} called {friend:guest/name} .
court    in the {place:royal_home} {name} met a {guest:royal} .
court    in the {place:common_home} {name} met a {guest:common} .
company  at work {name} met a {guest:adult} .
company  at school {name} met a {guest:child} .
closing  then {role/pronoun} went to bed .
closing  at last {name} went home .
closing  in the end {name} was happy .
closing  and that was the end of the day .
"""
MAX_SENTENCES = 7  # of the opening and the beats; with the closing, a story has 3 to 8 sentences
STOP = 0.25  # chance that the closing follows, after each beat
