# A JupyterHub on one machine, as we ran it for the figures in ../ELSEWHERE.md. Its environment needs the course and
#
#     python -m pip install jupyterhub nbgitpuller && npm install --global configurable-http-proxy
#     jupyterhub --config .github/hub/jupyterhub_config.py
#
# `python -m course_lib release FOLDER --hub ADDRESS` prints the link that learners follow. Before you let a class in,
# replace the first two lines: anyone who can reach this hub may log in, and all servers run as one user of the machine.
import os.path

from course_lib.cli.start import SETTINGS, STARTUP

c = get_config()  # JupyterHub defines it
c.JupyterHub.authenticator_class = "dummy"  # your university's login instead: OAuthenticator, LTI, PAM
c.JupyterHub.spawner_class = "simple"  # a spawner with containers instead: it also enforces the two limits below
c.Authenticator.allow_all = True

FOLDER = "course"  # the last part of the repository's address: nbgitpuller clones into a folder of this name


def clone(spawner):
    return os.path.join(spawner.home_dir, FOLDER)


c.Spawner.default_url = "/lab"
c.Spawner.mem_limit = "2G"  # 1 GB is enough for a chapter with its exercises; `doctor` tells learners who have less
c.Spawner.cpu_limit = 2
# Ten kernels that start at once on one machine may choose the same port: one of ours never started. Containers have
# ports of their own, and need no such line.
c.Spawner.args = ["--KernelManager.transport=ipc"]
c.Spawner.environment = {
    "PYTHONPATH": clone,  # a release brings the library, too: otherwise notebooks would use the hub's older one
    "JUPYTER_CONFIG_PATH": str(SETTINGS),  # a control waits for the running cell, so that seeds give the same results
    "PYTHONSTARTUP": str(STARTUP),  # undefined names are explained, and notebooks open where the learner stopped
    "COURSE_DEVICE": "cpu",
    "OMP_NUM_THREADS": "1",  # otherwise each learner's answers would use all cores of the machine
}
