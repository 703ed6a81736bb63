# Catch2 2.13 (Debian 12) and 3 differ in header and package; tests include support/catch.h only.
find_package(Catch2 REQUIRED)
include(Catch)

# One ctest entry per test case, labelled with its kind.
function(weft_discover TARGET KIND)
    # Real processes and real time: one at a time.
    string(COMPARE EQUAL ${KIND} integration serial)
    catch_discover_tests(${TARGET} PROPERTIES LABELS ${KIND} TIMEOUT 120 RUN_SERIAL ${serial}
                         DISCOVERY_MODE PRE_TEST)
endfunction()
