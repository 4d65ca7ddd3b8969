"""The demonstration application: a health diary, kept and reviewed by agents."""

from health.agents import health_application
from health.diary import Diary

__all__ = ["application"]

application = health_application(Diary())
