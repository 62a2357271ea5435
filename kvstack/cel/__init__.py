"""Expressions in CEL, with the functions, limits and texts of Kubernetes.

    scope = Scope(functions=COMPATIBLE, variables={"object": DYN})
    program = compile_expression("object.spec.replicas <= 5", scope)    raises CompileError
    program.type                        what it returns
    program.evaluate(bindings, limit)   → Outcome(value, cost); raises EvaluationError

    syntax/      text → tree (tokens, grammar, macros)
    checker/     types, functions, costs that can be foreseen
    library/     the functions, a module a library
    evaluation/  tree → closures that count what they cost

The uses of expressions are elsewhere:

    admission    what policies and match conditions may name, and their errors
    schemas/     the same for rules of custom resources (`customresources/rules.py` runs them)
    devices      selectors of devices
    type_checks  policies against the types of objects

    policy.expressions.match_conditions      match(conditions, bindings) → Match; for webhooks
                                             `RequestConditions(authorizer).hold(…)`
    policy.admission.policies                the two plugins

A room with variables of its own makes a `Scope` and calls `admission.compile_in(scope, text,
types)` → Compiled(program, problem).

Everything is pure and does not wait: an authorizer that needs a request makes the
evaluation stop with `PendingCheckError`, and it is done again once the answer is known.
"""
