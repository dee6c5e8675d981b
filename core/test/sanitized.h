/* Whether the tests run under ASan, by gcc or clang. Everything then takes several
 * times as long, so tests repeat things less often. */
#ifndef TCONV_CORE_TEST_SANITIZED_H
#define TCONV_CORE_TEST_SANITIZED_H

#ifdef __SANITIZE_ADDRESS__
#define TEST_SANITIZED 1
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif

#endif
