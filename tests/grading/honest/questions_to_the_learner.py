# input() and getpass() in cells: nobody is there to answer, they give "", and the answers below them stay.
# expects: attention.memory heads.parameters
# earns: attention.memory heads.parameters
# %%
name = input("Who are you? ")
print("hello", name)
# %%
from getpass import getpass

secret = getpass()
# %%
attention_memory = 2048 * 2048 * 4
if input("done? ") == "yes":
    print("good")
# %%
shown = input("Shall I show it? ") or getpass("And your password? ")
heads_parameters = (512 * 512 + 512) * 4
