"""Whole classes: what lies in a folder, who is on the roster, and who must be found in which files.

`FOUND` names of learners, or of submissions where there is no roster -> the things in the folder that are theirs. What
is in no list of a case must not appear in its manifest either.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.grading.archives import HONEST, packed
from tests.handed_in import TEXT, about

ZIP = packed((HONEST, TEXT))
CANVAS = "Student,ID,SIS User ID,SIS Login ID,Section\n    Points Possible,,,,\n"
MOODLE = "Identifier,Full name,Email address,Status,Grade,Last modified (grade),Feedback comments\n"


@dataclass(frozen=True)
class Class:
    """A class that was handed in. The lists are names; those of `found` carry the things that are theirs."""

    about: str
    files: Mapping[str, str | bytes | None]
    found: Mapping[str, set[str]]
    roster: str | bytes = ""
    unknown: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    not_taken: set[str] = field(default_factory=set)
    one_each: bool = False


def each(*names: str, chapter: int = 3) -> dict[str, str]:
    return dict.fromkeys(names, about(chapter))


def own(*names: str) -> dict[str, set[str]]:
    """Each is found, in the one thing that bears its name."""
    return {name.removesuffix(".ipynb").removesuffix(".zip"): {name} for name in names}


HONEST_CLASSES = {
    "canvas": Class(
        "Canvas's download of one assignment: two files of one learner, one late, one resubmitted.",
        each(
            *("doejane_11_201_02_attention.ipynb", "doejane_11_202_03_masks.ipynb"),
            *("roebo_LATE_12_203_02_attention.ipynb", "poecy_13_204_02_attention-2.ipynb"),
        ),
        {
            "Jane Doe": {"doejane_11_201_02_attention.ipynb", "doejane_11_202_03_masks.ipynb"},
            "Bo Roe": {"roebo_LATE_12_203_02_attention.ipynb"},
            "Cy Poe": {"poecy_13_204_02_attention-2.ipynb"},
        },
        CANVAS + '"Doe, Jane",11,S1,jane,A\n"Roe, Bo",12,S2,bo,A\n"Poe, Cy",13,S3,cy,A\n"Student, Test",99,,,A\n',
    ),
    "canvas, someone handed in nothing": Class(
        "Who is on the roster and not in the folder is listed as missing, and is no zero in anybody's row.",
        each("doejane_11_201_02_attention.ipynb"),
        {"Jane Doe": {"doejane_11_201_02_attention.ipynb"}},
        CANVAS + '"Doe, Jane",11,,,A\n"Roe, Bo",12,,,A\n',
        missing={"Bo Roe"},
    ),
    "canvas, an observer joins": Class(
        "A download of a number that no row has is graded, and said to be unknown.",
        each("doejane_11_201_02_attention.ipynb", "zoe_77_209_02_attention.ipynb"),
        {"Jane Doe": {"doejane_11_201_02_attention.ipynb"}},
        CANVAS + '"Doe, Jane",11,,,A\n',
        unknown={"zoe_77_209_02_attention"},
    ),
    "moodle, folders": Class(
        "Moodle's download with a folder for each learner; one has an online text beside it.",
        {
            "Ada Lane_101_assignsubmission_file/02_attention.ipynb": about(3),
            "Ada Lane_101_assignsubmission_onlinetext/onlinetext.html": "<p>",
            "Bo Roe_102_assignsubmission_file/work.zip": ZIP,
        },
        {
            "Ada Lane": {"Ada Lane_101_assignsubmission_file", "Ada Lane_101_assignsubmission_onlinetext"},
            "Bo Roe": {"Bo Roe_102_assignsubmission_file"},
        },
        MOODLE + "Participant 101,Ada Lane,ada@example.org,,,,\nParticipant 102,Bo Roe,bo@example.org,,,,\n",
    ),
    "moodle, flat": Class(
        "Moodle's download without folders.",
        each("Ada Lane_101_assignsubmission_file_02_attention.ipynb", "Bo Roe_102_assignsubmission_file_x.ipynb"),
        {
            "Ada Lane": {"Ada Lane_101_assignsubmission_file_02_attention.ipynb"},
            "Bo Roe": {"Bo Roe_102_assignsubmission_file_x.ipynb"},
        },
        (MOODLE + "Participant 101,Ada Lane,ada@example.org,,,,\nParticipant 102,Bo Roe,bo@example.org,,,,\n").encode(
            "utf-8-sig"
        ),
    ),
    "moodle, two of one name": Class(
        "Two learners of one name are two, told apart by their ids.",
        each("Ada Lane_101_assignsubmission_file/x.ipynb", "Ada Lane_105_assignsubmission_file/x.ipynb"),
        {
            "Ada Lane (101)": {"Ada Lane_101_assignsubmission_file"},
            "Ada Lane (105)": {"Ada Lane_105_assignsubmission_file"},
        },
        MOODLE + "Participant 101,Ada Lane,a@example.org,,,,\nParticipant 105,Ada Lane,b@example.org,,,,\n",
    ),
    "moodle, participants": Class(
        "The list of participants has no number of a submission: the names in the downloads say whose it is.",
        each("ada.lane/02_attention.ipynb", "Bo Roe/02_attention.ipynb"),
        {"Ada Lane": {"ada.lane"}, "Bo Roe": {"Bo Roe"}},
        "First name,Last name,Email address\nAda,Lane,ada.lane@example.org\nBo,Roe,bo@example.org\n",
    ),
    "gradescope": Class(
        "Gradescope's export: a folder for each submission, and a roster that lists those who teach, too.",
        each("submission_1001/02_attention.ipynb", "submission_1002/02_attention.ipynb"),
        {"Ada Lane": {"submission_1001"}, "Bo Roe": {"submission_1002"}},
        "First Name,Last Name,SID,Email,Role\nAda,Lane,1001,ada@example.org,Student\n"
        "Bo,Roe,1002,bo@example.org,Student\nCy,Poe,7,cy@example.org,Instructor\n",
    ),
    "github classroom": Class(
        "Cloned repositories bear the assignment and the account.",
        each("attention-ada-l/exercises/02_attention.ipynb", "attention-bo/02_attention.ipynb"),
        {"ada@example.org": {"attention-ada-l"}, "bo@example.org": {"attention-bo"}},
        "identifier,github_username,github_id,name\nada@example.org,ada-l,1,\nbo@example.org,bo,2,\n",
    ),
    "flat files by login": Class(
        "A folder of files that begin with the login, several of one learner.",
        each("ada_02_attention.ipynb", "ada_03_masks.ipynb", "bo_02_attention.ipynb", "cy.ipynb"),
        {
            "Ada Lane": {"ada_02_attention.ipynb", "ada_03_masks.ipynb"},
            "Bo Roe": {"bo_02_attention.ipynb"},
            "Cy Poe": {"cy.ipynb"},
        },
        "login;name\nada;Ada Lane\nbo;Bo Roe\ncy;Cy Poe\n",
    ),
    "flat files, no roster": Class(
        "Without a roster two files are two submissions: what was split is seen.",
        each("ada_02_attention.ipynb", "ada_03_masks.ipynb", "bo_02_attention.ipynb"),
        own("ada_02_attention.ipynb", "ada_03_masks.ipynb", "bo_02_attention.ipynb"),
    ),
    "nbgrader": Class(
        "Folders as nbgrader collects them: learner, assignment, notebook.",
        each("ada/attention/02_attention.ipynb", "bo/attention/02_attention.ipynb"),
        {"ada": {"ada"}, "bo": {"bo"}},
        "id,first_name,last_name,email\nada,,,\nbo,,,\n",
    ),
    "zip files by e-mail": Class(
        "Zip files under the learners' addresses.",
        {"ada@example.org.zip": ZIP, "bo@example.org.zip": ZIP},
        {"Ada Lane": {"ada@example.org.zip"}, "Bo Roe": {"bo@example.org.zip"}},
        "Name,Email\nAda Lane,ada@example.org\nBo Roe,bo@example.org\n",
    ),
    "a folder and a file of one learner": Class(
        "Ada sent a folder and, later, a notebook: with a roster both are hers.",
        {"ada/02_attention.ipynb": about(3), "ada_03_masks.ipynb": about(4), "bo.ipynb": about(3)},
        {"ada": {"ada", "ada_03_masks.ipynb"}, "bo": {"bo.ipynb"}},
        "id\nada\nbo\n",
    ),
    "one each": Class(
        "Two files of one number are two submissions where the teacher says so.",
        each("doe_11_201_x.ipynb", "doe_11_202_y.ipynb"),
        own("doe_11_201_x.ipynb", "doe_11_202_y.ipynb"),
        one_each=True,
    ),
    "one each, in course's names": Class(
        "A folder of course's notebooks would be one learner's; the teacher says that each is somebody's.",
        each("02_attention.ipynb", "03_masks.ipynb"),
        own("02_attention.ipynb", "03_masks.ipynb"),
        one_each=True,
    ),
    "names with accents, composed and not": Class(
        "macOS writes é as two characters, the roster as one.",
        each("Zoe\u0308 Poe\u0301/02_attention.ipynb", "Émile/02_attention.ipynb"),
        {"Zoë Poé": {"Zoe\u0308 Poe\u0301"}, "Émile": {"Émile"}},
        "Name\nZoë Poé\nE\u0301mile\n",
    ),
    "names in other scripts": Class(
        "Names that have no spaces, and names from right to left.",
        each("王小明/02_attention.ipynb", "דנה לוי/02_attention.ipynb"),
        {"王小明": {"王小明"}, "דנה לוי": {"דנה לוי"}},
        "Name,ID\n王小明,5\nדנה לוי,6\n",
    ),
    "last name first": Class(
        "The folders say the last name first, as many lists do.",
        each("Lane Ada/02_attention.ipynb", "Roe, Bo/02_attention.ipynb"),
        {"Ada Lane": {"Lane Ada"}, "Bo Roe": {"Roe, Bo"}},
        "Last name,First name,ID number\nLane,Ada,1\nRoe,Bo,2\n",
    ),
    "numbers as names": Class(
        "Folders called by student number, as exam offices do; the roster kept its leading apostrophe.",
        each("0012345/02_attention.ipynb", "0012346/02_attention.ipynb"),
        {"Ada Lane": {"0012345"}, "Bo Roe": {"0012346"}},
        "Student ID,Name\n'0012345,Ada Lane\n'0012346,Bo Roe\n",
    ),
    "a roster in the folder": Class(
        "The roster, a template and what a system left lie in the folder, too.",
        {**each("ada.ipynb", "bo.ipynb"), "roster.csv": "id\nada\nbo\n", ".DS_Store": "", "Thumbs.db": ""},
        {"ada": {"ada.ipynb"}, "bo": {"bo.ipynb"}},
        "id\nada\nbo\n",
        not_taken={"roster.csv"},
    ),
    "a template among the hand-ins": Class(
        "The teacher's template is nobody's: it is graded, and said to be in no row.",
        each("ada.ipynb", "template.ipynb"),
        {"ada": {"ada.ipynb"}},
        "id\nada\n",
        unknown={"template"},
    ),
    "helper files": Class(
        "What a notebook imports lies beside it, under the same login.",
        {**each("bo.ipynb"), "bo_helpers.py": "x = 1"},
        {"bo": {"bo.ipynb", "bo_helpers.py"}},
        "login\nbo\nmal\n",
        missing={"mal"},
    ),
    "digits in a file's name": Class(
        "A file of Canvas's whose own name holds numbers, which are nobody's on the roster.",
        each("doejane_11_201_hw_22_33_x.ipynb"),
        {"Jane Doe": {"doejane_11_201_hw_22_33_x.ipynb"}},
        CANVAS + '"Doe, Jane",11,,,A\n',
    ),
    "a section called as Canvas's test student": Class(
        "What is in another column than the name makes nobody Canvas's test student.",
        each("bo.ipynb"),
        {"Bo Roe": {"bo.ipynb"}},
        "login,name,section\nada,Ada Lane,Test Student Group\nbo,Bo Roe,Points Possible club\n",
        missing={"Ada Lane"},
    ),
    "an empty folder": Class(
        "Who handed in an empty folder is found, in it; nobody is missing.",
        {"ada/02_attention.ipynb": about(3), "bo": None},
        {"ada": {"ada"}, "bo": {"bo"}},
        "id\nada\nbo\n",
    ),
    "what cannot be taken is not lost": Class(
        "A printed page and an archive of another kind beside notebooks: each is listed, or a submission that says so.",
        {**each("ada.ipynb"), "bo.html": "<p>", "cy.7z": b"7z"},
        {"ada": {"ada.ipynb"}, "cy": {"cy.7z"}},
        "id\nada\nbo\ncy\n",
        missing={"bo"},
        not_taken={"bo.html"},
    ),
    "a pair": Class(
        "One file under two names of the roster is nobody's alone: it is graded, and a person decides.",
        each("ada_bo.ipynb", "cy.ipynb"),
        {"cy": {"cy.ipynb"}},
        "id\nada\nbo\ncy\n",
        unknown={"ada_bo"},
        missing={"ada", "bo"},
    ),
}


THREE = CANVAS + '"Lane, Ada",11,,,A\n"Roe, Bo",22,,,A\n"Yard, Mal",66,,,A\n'  # Mal is up to no good
SENDS = "_assignsubmission_file"
MOODLES = MOODLE + "".join(
    f"Participant {number},{name},{name[:2].lower()}@example.org,,,,\n"
    for number, name in [(11, "Ada Lane"), (22, "Bo Roe"), (66, "Mal Yard")]
)

HOSTILE_CLASSES = {
    "a file called as a neighbour's download, Canvas": Class(
        "Mal names his file as if it were Bo's download: it joins nobody's, and a person decides.",
        each("laneada_11_201_x.ipynb", "roebo_22_202_x.ipynb", "yardmal_66_203_roebo_22_204_x.ipynb"),
        {"Ada Lane": {"laneada_11_201_x.ipynb"}, "Bo Roe": {"roebo_22_202_x.ipynb"}},
        THREE,
        unknown={"yardmal_66_203_roebo_22_204_x"},
        missing={"Mal Yard"},
    ),
    "a file called as a neighbour's download, Moodle": Class(
        "The same on Moodle, without folders.",
        each(f"Bo Roe_22{SENDS}_x.ipynb", f"Mal Yard_66{SENDS}_Bo Roe_22{SENDS}_x.ipynb"),
        {"Bo Roe": {f"Bo Roe_22{SENDS}_x.ipynb"}},
        MOODLES,
        unknown={f"Mal Yard_66{SENDS}_Bo Roe_22{SENDS}_x"},
        missing={"Ada Lane", "Mal Yard"},
    ),
    "a profile called as a neighbour's download": Class(
        "Mal's profile is called `Bo Roe_22_assignsubmission_file`: his folder begins as Bo's does.",
        each(f"Bo Roe_22{SENDS}/x.ipynb", f"Bo Roe_22{SENDS}_66{SENDS}/x.ipynb"),
        {"Bo Roe": {f"Bo Roe_22{SENDS}"}},
        MOODLES,
        unknown={f"Bo Roe_22{SENDS}_66{SENDS}"},
        missing={"Ada Lane", "Mal Yard"},
    ),
    "a profile called as a neighbour's download, with the roster of another office": Class(
        "The roster knows Mal by his official name, so that only Bo's agrees with what stands before the number.",
        each(f"Bo Roe_22{SENDS}/x.ipynb", f"Bo Roe_22{SENDS}_66{SENDS}/x.ipynb"),
        {"Bo Roe": {f"Bo Roe_22{SENDS}"}},
        "ID,Name\n22,Bo Roe\n66,Mal Yard\n",
        unknown={f"Bo Roe_22{SENDS}_66{SENDS}"},
        missing={"Mal Yard"},
    ),
    "the same without a roster": Class(
        "Nothing says whose it is: nothing is joined.",
        each(f"Bo Roe_22{SENDS}/x.ipynb", f"Bo Roe_22{SENDS}_66{SENDS}/x.ipynb"),
        own(f"Bo Roe_22{SENDS}", f"Bo Roe_22{SENDS}_66{SENDS}"),
    ),
    "a profile of another's name": Class(
        "Mal's profile says Bo Roe; the number says whose it is.",
        each(f"Bo Roe_22{SENDS}/x.ipynb", f"Bo Roe_66{SENDS}/x.ipynb"),
        {"Bo Roe": {f"Bo Roe_22{SENDS}"}, "Mal Yard": {f"Bo Roe_66{SENDS}"}},
        MOODLES,
        missing={"Ada Lane"},
    ),
    "another's login behind the number": Class(
        "What follows the platform's number is of the learner's choice: `bo.ipynb` sent by Mal is Mal's.",
        each("roebo_22_202_x.ipynb", "yardmal_66_203_bo.ipynb", "yardmal_66_204_22.ipynb"),
        {"Bo Roe": {"roebo_22_202_x.ipynb"}, "Mal Yard": {"yardmal_66_203_bo.ipynb", "yardmal_66_204_22.ipynb"}},
        THREE,
        missing={"Ada Lane"},
    ),
    "two logins in a file name": Class(
        "In a folder of loose files a name that begins with one and ends with another is nobody's.",
        each("bo.ipynb", "mal_for_bo.ipynb", "bo_mal.ipynb"),
        {"bo": {"bo.ipynb"}},
        "login\nbo\nmal\n",
        unknown={"mal_for_bo", "bo_mal"},
        missing={"mal"},
    ),
    "a login that begins as another": Class(
        "`al` and `al-b` are two people: the longer name counts, and `al_for_al-b` may be either's.",
        each("al-b_02_attention.ipynb", "al_02_attention.ipynb", "al_for_al-b.ipynb"),
        {"al": {"al_02_attention.ipynb"}, "al-b": {"al-b_02_attention.ipynb"}},
        "login\nal\nal-b\n",
        unknown={"al_for_al-b"},
    ),
    "letters that look alike": Class(
        "A Cyrillic letter in Bo's name is not Bo.",
        each("bo.ipynb", "b\u043e.ipynb"),
        {"bo": {"bo.ipynb"}},
        "login\nbo\n",
        unknown={"b\u043e"},
    ),
    "capitals": Class(
        "Two files that differ in capitals are one learner's on the roster, and joined under it.",
        each("bo.ipynb", "BO.ipynb"),
        {"bo": {"bo.ipynb", "BO.ipynb"}},
        "login\nbo\n",
    ),
    "full-width letters": Class(
        "Signs that are compatible forms of others are the same name.",
        each("\uff42\uff4f.ipynb"),
        {"bo": {"\uff42\uff4f.ipynb"}},
        "login\nbo\n",
    ),
    "a name that steers the terminal": Class(
        "Colours, bells and a turned reading order in a name.",
        each("bo\x1b[31m\u202etxt.ipynb"),
        {},
        "login\nada\n",
        unknown={"bo�[31m�txt"},
        missing={"ada"},
    ),
    "a name that is a formula": Class(
        "A spreadsheet would calculate it.",
        each("=1+1.ipynb", "ada.ipynb"),
        {"ada": {"ada.ipynb"}},
        "login\nada\n",
        unknown={"=1+1"},
    ),
    "a row called by a formula": Class(
        "The roster's own cell is a formula: it is a name like any other.",
        each("ada.ipynb"),
        {"ada": {"ada.ipynb"}},
        'login,name\nada,ada\nbo,"=HYPERLINK(""x"")"\n',
        missing={'=HYPERLINK("x")'},
    ),
    "course's file names as a login": Class(
        "Somebody's login is `attention`, which ends every file's name: what may be two people's is nobody's.",
        each("bo_attention.ipynb", "attention.ipynb"),
        {"attention": {"attention.ipynb"}},
        "login\nbo\nattention\n",
        unknown={"bo_attention"},
        missing={"bo"},
    ),
    "an id that is a chapter's number": Class(
        "Learner 02 and the notebook 02_attention: `bo_02` may be either's.",
        each("bo_02.ipynb", "02_02_attention.ipynb"),
        {},
        "id\nbo\n02\n",
        unknown={"bo_02", "02_02_attention"},
        missing={"bo", "02"},
    ),
    "numbers that a browser, or a learner, puts behind a name": Class(
        "A roster counts its people 1, 2, 3: `zed (2)` is the second download of zed's file, and nobody's row.",
        each("2.ipynb", "zed (2).ipynb", "homework_2.ipynb", "notebook (1).ipynb", "group 3/02_attention.ipynb"),
        {"Bo Roe": {"2.ipynb"}},
        "number,name\n1,Ada Lane\n2,Bo Roe\n3,Cy Poe\n",
        unknown={"zed (2)", "homework_2", "notebook (1)", "group 3"},
        missing={"Ada Lane", "Cy Poe"},
    ),
    "the course's words as a login": Class(
        "Somebody's login is `masks`, which ends half of the class's files.",
        each("zed_masks.ipynb", "masks.ipynb"),
        {"masks": {"masks.ipynb"}},
        "login\nmasks\n",
        unknown={"zed_masks"},
    ),
    "a folder called exercises": Class(
        "It makes nobody's folder a part of it.",
        each("ada/02_attention.ipynb", "exercises/02_attention.ipynb", "notebooks/02_attention.ipynb"),
        {"ada": {"ada"}},
        "login\nada\n",
        unknown={"exercises", "notebooks"},
    ),
    "a folder called as the course": Class(
        "A learner's folder `course_lib` beside `exercises` would make the class a copy of the course.",
        each("ada/02_attention.ipynb", "exercises/02_attention.ipynb", "course_lib/02_attention.ipynb"),
        {"ada": {"ada"}},
        "login\nada\n",
        unknown={"exercises", "course_lib"},
    ),
    "the same, one each": Class(
        "And without a roster, where the teacher says that each is somebody's.",
        each("ada/02_attention.ipynb", "exercises/02_attention.ipynb", "course_lib/02_attention.ipynb"),
        own("ada", "exercises", "course_lib"),
        one_each=True,
    ),
    "a notebook inside of a neighbour's archive": Class(
        "An archive that holds a folder called as another learner stays with whose it is.",
        {"mal.zip": packed(("bo/02_attention.ipynb", TEXT), ("ada.ipynb", TEXT)), "bo.ipynb": about(3)},
        {"mal": {"mal.zip"}, "bo": {"bo.ipynb"}},
        "login\nbo\nmal\n",
    ),
    "an archive that cannot be read": Class(
        "It is its learner's all the same, and says why it has no marks.",
        {"bo.zip": b"no archive", "ada.ipynb": about(3)},
        {"bo": {"bo.zip"}, "ada": {"ada.ipynb"}},
        "login\nbo\nada\n",
    ),
    "a hidden file in a neighbour's name": Class(
        "What is hidden is no hand-in, and is listed.",
        each(".bo.ipynb", "bo.ipynb"),
        {"bo": {"bo.ipynb"}},
        "login\nbo\n",
        not_taken={".bo.ipynb"},
    ),
    "equal numbers of files": Class(
        "Canvas gives no number twice: a folder that does is no download of Canvas, and joins nobody.",
        each("hw_11_2_ada.ipynb", "hw_11_2_bo.ipynb"),
        own("hw_11_2_ada.ipynb", "hw_11_2_bo.ipynb"),
    ),
    "equal numbers of files, with a roster": Class(
        "The same with a roster: two claim one row, and neither has it.",
        each("hw_11_2_ada.ipynb", "hw_11_2_bo.ipynb"),
        {},
        THREE,
        unknown={"hw_11_2_ada", "hw_11_2_bo"},
        missing={"Ada Lane", "Bo Roe", "Mal Yard"},
    ),
    "one each, and one row": Class(
        "Two things for one row, where each is to be one learner's: neither has it.",
        each("bo.ipynb", "bo_2.ipynb"),
        {},
        "login\nbo\n",
        unknown={"bo", "bo_2"},
        missing={"bo"},
        one_each=True,
    ),
    "a very long name": Class(
        "A name as long as a file system takes.",
        each("bo" + "o" * 240 + ".ipynb"),
        {},
        "login\nbo\n",
        unknown={"bo" + "o" * 240},
        missing={"bo"},
    ),
}
