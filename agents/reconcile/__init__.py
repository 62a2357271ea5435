"""How a controller runs: its decisions are plans, made without input or output.

    plan ◄── executor ◄── runner ◄── manager
             own_writes ◄─┘
             view ◄───────┘

`plan` says what a controller is; the rest carries it out.
"""
