import django

if django.VERSION[0] >= 6:
    from django.tasks import task
else:
    from django_tasks import task

from shop.models import Order


class Declined(Exception):
    pass


@task
def pay(number, *, cents):
    Order.objects.filter(number=number).update(paid=True)
    return {"number": number, "cents": cents}


@task(queue_name="slow")
async def apay(number):
    await Order.objects.filter(number=number).aupdate(paid=True)
    return number


@task
def decline(number):
    raise Declined(f"no funds for {number}")


@task(takes_context=True)
def attempt(context, number):
    return [context.attempt, context.task_result.id, number]


@task
def export(rows):
    return ["row"] * rows


@task
def sign_in(password):
    pass
