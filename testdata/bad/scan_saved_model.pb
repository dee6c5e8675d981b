$
x

n0Const

n1ReadFile