"""Spec and target facts become a Plan: every number and branch that a template uses, checked against the budgets."""
