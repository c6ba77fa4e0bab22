# Asks to be root, or anybody else, and to run programs that are: with that, it reads the teacher's file.
# expects: attention.softmax
# touches: canary
# %%
import contextlib
import os
import subprocess

TOLD = "broken" "-out: "
me = os.getresuid()


def softmax(x, dim):
    for change, arguments in ((os.setgroups, ([0],)), (os.setresgid, (0, 0, 0)), (os.setresuid, (0, 0, 0)), (os.setuid, (0,)),
                              (os.setresuid, (1, 1, 1)), (os.setresuid, (64001, 64001, 64001))):
        with contextlib.suppress(OSError):
            change(*arguments)
    for command in (["su", "-c", "cat {CANARY}"], ["sudo", "-n", "cat", "{CANARY}"], ["pkexec", "cat", "{CANARY}"],
                    ["mount"], ["bwrap", "--dev-bind", "/", "/", "cat", "{CANARY}"], ["unshare", "-Ur", "cat", "{CANARY}"],
                    ["nsenter", "-t", "1", "-a", "cat", "{CANARY}"], ["docker", "ps"]):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            said = subprocess.run(command, capture_output=True, timeout=1, stdin=subprocess.DEVNULL).stdout
            if b"canary" in said:
                raise RuntimeError(TOLD + " ".join(command) + said.decode())
    if os.getresuid() != me:
        raise RuntimeError(f"{TOLD} user {me} became {os.getresuid()}")
    return x
