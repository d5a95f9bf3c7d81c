"""A Django project whose tasks are Towpath jobs, in the database of its own tables."""

import os

import django

SECRET_KEY = "of a test"
USE_TZ = True
INSTALLED_APPS = ["shop"] if django.VERSION[0] >= 6 else ["django_tasks", "shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "towpath",
        "USER": "postgres",
        "HOST": os.environ["POSTGRES_HOST"],
    }
}
TASKS = {
    "default": {
        "BACKEND": "towpath.django.Backend",
        "QUEUES": ["default", "slow"],
        "OPTIONS": {"max_attempts": 1},
    }
}
