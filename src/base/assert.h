// Assertions about the library's own code. Bytes of a peer, input of a user and answers of the
// kernel are never asserted: they are validated and reported. Misuse by the program ends in
// abort_misused().
#pragma once

namespace weft::base {
[[noreturn]] void assertion_failed(const char* what, const char* file, int line);
// For a misused call that returns no status: writes "weft: CALL: WHY" to standard error and aborts.
// `why` names the remedy.
[[noreturn]] void abort_misused(const char* call, const char* why);
}  // namespace weft::base

// Stays on in release builds: for facts that memory safety depends on.
#define WEFT_ASSERT(fact) \
    ((fact) ? (void)0 : ::weft::base::assertion_failed(#fact, __FILE__, __LINE__))

// Debug builds only: for the hot path.
#ifdef NDEBUG
#define WEFT_DCHECK(fact) ((void)(false && (fact)))
#else
#define WEFT_DCHECK(fact) WEFT_ASSERT(fact)
#endif
