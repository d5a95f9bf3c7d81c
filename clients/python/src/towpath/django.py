"""A backend for Django's tasks: `django.tasks` of Django 6, or the package django-tasks before it.

    TASKS = {"default": {"BACKEND": "towpath.django.Backend"}}

A task is enqueued on Django's own connection, so it is part of the current transaction. Its worker:

    DJANGO_SETTINGS_MODULE=shop.settings python -m towpath work towpath.django

Each queue is a job kind, `django.` and its name. Options of the backend: `database`, the alias of the
connection to enqueue on, and `max_attempts`.
"""

# Django has no types of its own, so nothing that comes from it has one.
# pyright: reportUntypedBaseClass=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportMissingTypeStubs=false, reportUnknownArgumentType=false, reportMissingImports=false

from __future__ import annotations

import importlib
import json
from base64 import b64decode
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import django
from django.apps import apps
from django.db import close_old_connections, connections
from django.utils import timezone
from django.utils.module_loading import import_string

from . import describe, handles
from .arguments import dumps
from .calls import moment
from .context import Context
from .errors import PermanentError
from .handles import Statement
from .job import Job

# Django's own from version 6 on; the package that it came from before.
_tasks: Any = importlib.import_module("django.tasks" if django.VERSION[0] >= 6 else "django_tasks")
_base: Any = importlib.import_module(f"{_tasks.__name__}.base")
_signals: Any = importlib.import_module(f"{_tasks.__name__}.signals")
_exceptions: Any = importlib.import_module(f"{_tasks.__name__}.exceptions")
_DoesNotExist: Any = _exceptions.TaskResultDoesNotExist
_BaseTaskBackend: Any = importlib.import_module(f"{_tasks.__name__}.backends.base").BaseTaskBackend

_KIND = "django."
# Towpath's default priority; Django's priorities are -100 to 100 around 0.
_PRIORITY = 100
_RUNNING = ("leased", "in_progress")


class Backend(_BaseTaskBackend):
    """Django tasks as Towpath jobs."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueues a task in the current transaction. A refusal raises, so the transaction rolls back."""
        self.validate_task(task)
        payload = {"task": task.module_path, "args": list(args), "kwargs": kwargs}
        options = {
            "priority": _PRIORITY + task.priority,
            "run_at": task.run_after,
            "max_attempts": self.options.get("max_attempts"),
        }
        row = describe.job(_KIND + task.queue_name, payload, options)
        job_id = handles.run(self._connection, Statement("enqueue", row, "text"))
        result = self.as_result(task, job_id, payload, {"created_at": timezone.now()})
        _signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The task as it is now. The database login needs the role `towpath_observer`."""
        try:
            shown = self._ask("fn_job_show", result_id)
        except Exception as error:
            if "22P02" not in (getattr(error.__cause__, "sqlstate", None), getattr(error, "sqlstate", None)):
                raise
            raise _DoesNotExist(result_id) from error
        if not shown["ok"] or shown["job"] is None or not shown["job"]["job_kind"].startswith(_KIND):
            raise _DoesNotExist(result_id)
        job = shown["job"]
        payload = job["payload_json"]
        result = self.as_result(import_string(payload["task"]), result_id, payload, job, shown["runs"])
        value = result._return_value
        if isinstance(value, dict) and list(value) == ["payload_ref"]:
            # A large one is a payload of its job; if it is not, the task returned this itself.
            stored = self._ask("fn_job_result_payload", result_id)
            if stored["ok"]:
                object.__setattr__(result, "_return_value", json.loads(b64decode(stored["data"])))
        return result

    def _ask(self, function: str, job_id: str) -> Any:
        return json.loads(handles.run(self._connection, Statement(function, {"p_job_id": job_id}, "text")))

    @property
    def _connection(self) -> Any:
        return connections[self.options.get("database", "default")]

    def as_result(self, task: Any, job_id: str, payload: Any, job: Any, runs: Any = ()) -> Any:
        ends = [run for run in runs if run.get("finished_at") is not None]
        begun = [_moment(run["picked_at"]) for run in runs if run.get("picked_at") is not None]
        state = job.get("state", "queued")
        if state in _RUNNING:
            begun.append(_moment(job.get("picked_at")) or timezone.now())
        result = _base.TaskResult(
            task=task,
            id=job_id,
            status=_status(state),
            enqueued_at=_moment(job.get("created_at")),
            started_at=begun[0] if begun else None,
            last_attempted_at=begun[-1] if begun else None,
            finished_at=_moment(ends[-1]["finished_at"]) if ends and _is_finished(state) else None,
            args=payload["args"],
            kwargs=payload["kwargs"],
            backend=self.alias,
            errors=[_error(run["error"]) for run in ends if run.get("error")],
            worker_ids=[str(run.get("lease_owner")) for run in runs],
        )
        value = next((run["result"] for run in reversed(ends) if run.get("result") is not None), None)
        object.__setattr__(result, "_return_value", value)
        return result


def towpath_jobs() -> list[Job[Any, Any]]:
    """A job definition for each queue of the backends in the settings; `python -m towpath work` asks for them."""
    if not apps.ready:
        django.setup()
    queues: dict[str, Backend] = {}
    for alias in _tasks.task_backends.settings:
        backend = _tasks.task_backends[alias]
        if isinstance(backend, Backend):
            queues.update({queue: backend for queue in backend.queues})
    return [Job(_KIND + queue, _handler(backend), {}) for queue, backend in sorted(queues.items())]


def _handler(backend: Backend) -> Callable[[dict[str, Any], Context], Any]:
    def run(args: dict[str, Any], ctx: Context) -> Any:
        # As around a request: connections that are too old or broken are closed, in this thread.
        close_old_connections()
        try:
            return _run(backend, args, ctx)
        finally:
            close_old_connections()

    return run


def _run(backend: Backend, payload: dict[str, Any], ctx: Context) -> Any:
    try:
        task: Any = import_string(payload["task"])
    except ImportError as error:
        raise PermanentError(f"there is no task {payload['task']}: {error}") from error
    now = timezone.now()
    result: Any = backend.as_result(
        task, ctx.id, payload, {"state": "in_progress", "picked_at": now, "created_at": now}
    )
    result.worker_ids.extend(["towpath"] * ctx.attempt)
    tell = partial(_signals.task_finished.send, type(backend), task_result=result)
    _signals.task_started.send(type(backend), task_result=result)
    given = [_base.TaskContext(task_result=result)] if task.takes_context else []
    try:
        value = json.loads(dumps(task.call(*given, *payload["args"], **payload["kwargs"])))
    except Exception:
        object.__setattr__(result, "status", _base.TaskResultStatus.FAILED)
        object.__setattr__(result, "finished_at", timezone.now())
        tell()
        raise
    object.__setattr__(result, "_return_value", value)
    object.__setattr__(result, "status", _base.TaskResultStatus.SUCCESSFUL)
    object.__setattr__(result, "finished_at", timezone.now())
    tell()
    return value


def _is_finished(state: str) -> bool:
    return state in ("succeeded", "dead_letter", "cancelled")


def _status(state: str) -> Any:
    statuses: Any = _base.TaskResultStatus
    if state in _RUNNING:
        return statuses.RUNNING
    if state == "succeeded":
        return statuses.SUCCESSFUL
    return statuses.FAILED if _is_finished(state) else statuses.READY


def _moment(value: Any) -> datetime | None:
    return moment(value) if isinstance(value, str) else value


def _error(text: str) -> Any:
    """Our worker stores an error as Python prints it: its class, and behind a colon the message."""
    name = text.partition(":")[0]
    path = name if "." in name else f"builtins.{name}"
    return _base.TaskError(exception_class_path=path, traceback=text)
