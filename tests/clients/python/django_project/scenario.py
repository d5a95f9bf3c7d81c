"""Enqueues tasks as a view does, waits for them, and prints what it saw as JSON."""

import json
import time
from datetime import timedelta

import django

django.setup()

from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone
from shop.models import Order
from shop.tasks import apay, attempt, decline, export, pay, sign_in

import towpath

if django.VERSION[0] >= 6:
    from django.tasks import default_task_backend
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued
else:
    from django_tasks import default_task_backend
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued

call_command("migrate", run_syncdb=True, verbosity=0)
Order.objects.all().delete()
seen = {}
began = timezone.now()
signals = []
task_enqueued.connect(lambda sender, task_result, **_: signals.append(task_result.id), weak=False)


def finished(result):
    deadline = time.monotonic() + 120
    while not result.is_finished:
        assert time.monotonic() < deadline, f"{result.task.name} is {result.status}"
        time.sleep(0.05)
        result.refresh()
    return result


def jobs_of(number):
    """How many jobs have this number as their one argument, of those that this program enqueued."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(*) from towpath.job_queue where payload_json -> 'args' = %s::jsonb and created_at > %s",
            [f"[{number}]", began],
        )
        return cursor.fetchone()[0]


with transaction.atomic():
    Order.objects.create(number=1)
    result = pay.enqueue(1, cents=1990)
    seen["new"] = [result.status, result.id == signals[-1], jobs_of(1)]
result = finished(result)
seen["paid"] = [Order.objects.get(number=1).paid, result.return_value, result.status, result.attempts]
seen["times"] = result.enqueued_at <= result.started_at <= result.finished_at

try:
    with transaction.atomic():
        Order.objects.create(number=2)
        pay.enqueue(2, cents=1)
        raise RuntimeError
except RuntimeError:
    seen["rolled back"] = [Order.objects.filter(number=2).exists(), jobs_of(2)]

try:
    with transaction.atomic():
        Order.objects.create(number=3)
        sign_in.enqueue(password="1234")
except towpath.Invalid as error:
    seen["refused"] = [Order.objects.filter(number=3).exists(), error.word, type(error.__cause__).__name__]

Order.objects.create(number=4)
result = finished(apay.enqueue(4))
seen["async"] = [Order.objects.get(number=4).paid, result.return_value, result.task.queue_name]

result = finished(decline.enqueue(5))
seen["declined"] = [result.status, result.errors[0].exception_class.__name__, result.errors[0].traceback]

result = finished(attempt.enqueue(6))
seen["context"] = [result.return_value[0], result.return_value[1] == result.id, result.return_value[2]]

seen["large"] = len(finished(export.enqueue(20_000)).return_value)

later = attempt.using(priority=50, run_after=timezone.now() + timedelta(days=1)).enqueue(7)
with connection.cursor() as cursor:
    cursor.execute(
        "select priority, scheduled_at > now() + interval '1 hour' from towpath.job_queue where job_id = %s",
        [later.id],
    )
    seen["later"] = [*cursor.fetchone(), attempt.get_result(later.id).status]

for unknown in ("01900000-0000-7000-8000-000000000000", "nonsense"):
    try:
        default_task_backend.get_result(unknown)
    except TaskResultDoesNotExist:
        seen.setdefault("unknown", []).append(unknown)

print(json.dumps(seen))
