#ifndef TCONV_CORE_VERSION_H
#define TCONV_CORE_VERSION_H

#define TC_VERSION "0.1.0"

#endif
