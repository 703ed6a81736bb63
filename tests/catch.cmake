# Catch2 2.13 (Debian 12) and 3 differ in header and package; tests include support/catch.h only.
find_package(Catch2 REQUIRED)
include(Catch)

# One ctest entry per test case, labelled with its kind. What else follows is for
# catch_discover_tests().
function(weft_discover TARGET KIND)
    # Real processes and real time: one at a time.
    string(COMPARE EQUAL ${KIND} integration serial)
    # More than any wait of tests/support/test_timeout.h, so that a hang is reported by the test itself.
    set(timeout 120)
    # A test takes a processor, which is four of ctest's; one that mostly waits takes a quarter, and
    # starts early, for it lasts.
    set(processors 4)
    set(cost 0)
    if(${KIND} STREQUAL leaks)
        set(timeout 600)
        set(processors 1)
        set(cost 100)
    endif()
    if(WEFT_SANITIZE)
        set(timeout 600)
    endif()
    catch_discover_tests(${TARGET} ${ARGN} PROPERTIES LABELS ${KIND} TIMEOUT ${timeout} RUN_SERIAL ${serial}
                         PROCESSORS ${processors} COST ${cost} DISCOVERY_MODE PRE_TEST)
    weft_needed_for(${KIND} ${TARGET})
endfunction()
