/* The version stands in meson.build, and comes from there with every file that is compiled. */
#ifndef TCONV_CORE_BASE_VERSION_H
#define TCONV_CORE_BASE_VERSION_H

#define TC_VERSION TCONV_VERSION

#endif
