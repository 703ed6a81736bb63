#!/usr/bin/env python3
"""check_limits.py evaluates constants as C++ does, and refuses a page that states another number."""

import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_limits  # noqa: E402

SOURCE = """
inline constexpr std::size_t large = std::size_t{64} << 20;  // big = 1;
static constexpr std::uint32_t many = 65'536, quarter = many / 4;
constexpr Duration longest = 2500ms;
inline constexpr weft::Duration minutes = std::chrono::minutes(10);
static constexpr int pause_ms = 1000;
std::size_t option_max = 128u << 20;  // WEFT_OPTION
"""


class CheckLimits(unittest.TestCase):
    def test_constants_have_the_value_of_the_code(self):
        for name, value in (("large", 64 << 20), ("many", 65536), ("quarter", 16384), ("longest", 2500 * 10**6),
                            ("minutes", 600 * 10**9), ("pause_ms", 10**9), ("option_max", 128 << 20)):
            self.assertEqual(check_limits.value_of(name, SOURCE), value, name)

    def test_a_constant_that_does_not_exist_is_an_error(self):
        with self.assertRaises(ValueError):
            check_limits.value_of("none", SOURCE)

    def test_values_are_stated_in_units_and_as_whole_numbers(self):
        for value, row in ((64 << 20, "at most 64 MiB"), (65536, "65536 calls"), (check_limits.Duration(2500 * 10**6), "2.5 s")):
            self.assertTrue(check_limits.is_stated(value, row), row)
        for value, row in ((64 << 20, "at most 164 MiB"), (4096, "40960"), (check_limits.Duration(5 * 10**9), "2.5 s")):
            self.assertFalse(check_limits.is_stated(value, row), row)

    def row(self, row):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "src/rpc"))
            with open(os.path.join(root, "src/rpc/a.h"), "w", encoding="utf-8") as file:
                file.write(SOURCE)
            return list(check_limits.check_row(root, row))

    def test_a_true_row_with_a_reason_passes(self):
        self.assertEqual(self.row("| a | 65536, 2.5 s | refused | share; wire: both <!-- rpc/a.h:many rpc/a.h:longest --> |"), [])

    def test_another_number_a_missing_reason_and_a_missing_file_are_refused(self):
        for row, words in (("| a | 65535 | refused | share <!-- rpc/a.h:many --> |", "many is 65536"),
                           ("| a | 65536 | refused | because <!-- rpc/a.h:many --> |", "none of"),
                           ("| a | 65536 | refused |", "none of"),
                           ("| a | 1 | refused | wire <!-- rpc/b.h:many --> |", "does not exist")):
            found = self.row(row)
            self.assertEqual(len(found), 1, row)
            self.assertIn(words, found[0])


if __name__ == "__main__":
    unittest.main()
