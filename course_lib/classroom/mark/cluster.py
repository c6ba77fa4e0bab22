"""Run the jobs on a Dask cluster. Workers may be killed or added and the scheduler restarted; no result is lost.

Run `pip install distributed` here and on the cluster. The cluster's machines execute the jobs and are trusted. Each of
them needs this course and a working sandbox.
"""

import asyncio
import atexit
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError

from tqdm import tqdm

from course_lib.classroom.mark.journal import version
from course_lib.classroom.mark.marking import TRIES, Done, Job, do_again, do_job
from course_lib.classroom.sandbox.probe import require_isolation
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.classroom.sandbox.remote import Worker

ANSWER = 60.0  # seconds in which a scheduler must answer: a busy one takes more than ten
PATIENCE = 600.0  # seconds without a scheduler before the rest is given up
_mine = threading.local()
_slots = iter(range(10**9))


def on_cluster(jobs: Sequence[Job], scheduler: str) -> Iterator[Done]:
    """Yield every job when it is done. A job that fails three times, or has no scheduler for ten minutes, has a fault.

    If the cluster has no workers, a message goes to standard error and the jobs wait.
    Errors: ValueError if `distributed` is not installed, or no scheduler answers at the beginning.
    """
    try:
        from distributed import Client, KilledWorker, as_completed
    except ImportError as error:
        raise ValueError("--scheduler needs `pip install distributed`, here and on the cluster") from error
    todo = {job.key: job for job in jobs}
    faults = dict.fromkeys(todo, 0)
    doubted: dict[str, Done] = {}  # failed by time, memory or a signal: run again, then alone
    seen, first = time.monotonic(), True
    while todo and time.monotonic() - seen < PATIENCE:
        # A job that failed with its worker may only have been waiting there, so it runs again by itself.
        fresh = [job for key, job in todo.items() if not faults[key] and key not in doubted]
        batch = fresh or [next(iter(todo.values()))]
        try:
            with Client(scheduler, timeout=ANSWER, set_as_default=False) as client:
                first = False
                if not client.nthreads():
                    start = f"start some with `dask worker {scheduler}`"
                    tqdm.write(f"The scheduler at {scheduler} has no workers yet: {start}.", file=sys.stderr)
                futures = {}
                for job in batch:
                    more = [doubted[job.key]] if job.key in doubted else []
                    name = f"mark-{job.key}-{faults[job.key]}{'-again' * len(more)}"
                    futures[client.submit(on_worker, job, version(), *more, key=name, pure=False)] = job.key
                for future in as_completed(futures, loop=client.loop):
                    key, done = futures.pop(future), None
                    if future.status == "finished":
                        done = future.result()
                        future.release()  # otherwise the cluster grades it again if it loses this worker
                        faults[key] += not done.marked
                        if done.marked and done.doubted:
                            doubted[key], done = done, None
                    elif future.status == "error":
                        raised = future.exception()
                        done = Done(key, None, f"{type(raised).__name__}: {raised}"[:500])
                        faults[key] += TRIES if isinstance(raised, KilledWorker) and len(batch) == 1 else 1
                    # otherwise lost or cancelled with a scheduler that is gone: it is sent again
                    if done and (done.marked or faults[key] >= TRIES):
                        del todo[key]
                        yield done
                    seen = time.monotonic()
        except (OSError, CancelledError, asyncio.CancelledError) as error:  # from the scheduler, or when it is lost
            if first:
                raise ValueError(f"--scheduler {scheduler}: no Dask scheduler answers there; is it running?") from error
            time.sleep(1)
        except ValueError as error:
            if not first:
                raise
            raise ValueError(f"--scheduler {scheduler} is no address ({error}): write it as tcp://host:8786") from error
    for key in todo:
        yield Done(key, None, f"the Dask scheduler at {scheduler} did not come back")


def on_worker(job: Job, grader: str, first: Done | None = None) -> Done:
    """Grade one job in a Dask worker, with a sandboxed worker that belongs to this thread.

    Args:
        grader: the required version of the grader.
        first: the result of the first run, if this is a second one.
    """
    if version() != grader:
        raise RuntimeError(
            f"this worker has another version of the course ({version()}, not {grader}): install it there"
        )
    terms: tuple[str, Quotas, int] = (job.sandbox, job.quotas, job.seed)
    if getattr(_mine, "terms", None) != terms:
        if getattr(_mine, "worker", None):
            _mine.worker.close()
        _mine.worker = Worker(job.sandbox, job.quotas, slot=next(_slots) % 64).__enter__()
        _mine.worker.seed = job.seed
        atexit.register(_mine.worker.close)
        require_isolation(_mine.worker)
        _mine.terms = terms
    return do_again(job, first, _mine.worker) if first else do_job(job, _mine.worker)
