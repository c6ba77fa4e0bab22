#!/usr/bin/env bash
# Gradescope runs this once, as root on Ubuntu, while it builds the image: Python, the course's packages, bubblewrap.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
source="${AUTOGRADER:-/autograder}/source"
environment="${COURSE_ENVIRONMENT:-/opt/course}"

apt-get update
apt-get install -y --no-install-recommends bubblewrap util-linux ||
    echo "setup: bubblewrap cannot be installed; answers will be kept in by Gradescope's container alone"

python=""
for version in 3.13 3.12 3.11; do
    if apt-get install -y --no-install-recommends "python$version" "python$version-venv"; then
        python="python$version"
        break
    fi
done
if [ -z "$python" ]; then
    echo "setup: this image has no Python from 3.11 to 3.13: choose a base image with Ubuntu 22.04 or newer" >&2
    exit 1
fi

"$python" -m venv "$environment"
"$environment/bin/python" -m pip install --no-cache-dir INDEX -r "$source/requirements.txt"
chmod -R go-rwx "$source" # it holds the reference answers
cd "$source/course"
"$environment/bin/python" -c "import course_lib.classroom.autograder" # a build that cannot grade fails here
