/*
 * Whether this is a build with AddressSanitizer: it maps more memory than any
 * limit allows, and looks for leaks from a process that traces this one.
 */
#ifndef TCONV_CORE_IO_SANITIZED_H
#define TCONV_CORE_IO_SANITIZED_H

#ifdef __SANITIZE_ADDRESS__
#define TC_SANITIZED 1
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define TC_SANITIZED 1
#endif
#endif
#ifndef TC_SANITIZED
#define TC_SANITIZED 0
#endif

#endif
