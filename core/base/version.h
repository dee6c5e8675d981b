/* The version is set in meson.build, which passes it to the compiler as TCONV_VERSION. */
#ifndef TCONV_CORE_BASE_VERSION_H
#define TCONV_CORE_BASE_VERSION_H

#define TC_VERSION TCONV_VERSION

#endif
