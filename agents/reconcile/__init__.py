"""The framework of controllers: their decisions are plans, made without input or output.

    plan ◄── executor ◄── runner ◄── manager
             own_writes ◄─┘
             view ◄───────┘

`plan` defines what a controller is; the rest runs it.
"""
