/* Functions that cannot be used safely, banned at compile time. */
#ifndef TCONV_CORE_BANNED_H
#define TCONV_CORE_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef TCONV_ALLOW_BANNED
#undef alloca
#pragma GCC poison strcpy strcat sprintf vsprintf gets alloca
#endif

#endif
