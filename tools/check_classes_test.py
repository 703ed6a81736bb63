#!/usr/bin/env python3
"""check_classes.py refuses long lists of members and classes that hold each other, and passes what is small."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_classes  # noqa: E402


def found(text):
    classes = check_classes.parse("src/a.h", text)
    return check_classes.sizes(classes) + check_classes.circles(classes)


def members(count, name="m"):
    return "".join(f"    int {name}{i}_ = 0;  // What it is.\n" for i in range(count))


class Sizes(unittest.TestCase):
    def test_twelve_members_need_no_groups(self):
        self.assertEqual(found("class A {\n" + members(12) + "};\n"), [])

    def test_thirteen_members_need_a_comment_that_groups_them(self):
        self.assertEqual(len(found("class A {\n" + members(13) + "};\n")), 1)
        grouped = "class A {\n    // Constant.\n" + members(6, "c") + "\n    // Of the thread.\n" + members(7, "t") + "};\n"
        self.assertEqual(found(grouped), [])

    def test_a_comment_inside_of_a_group_begins_none(self):
        text = "class A {\n" + members(7, "a") + "    // Of the next one.\n" + members(6, "b") + "};\n"
        self.assertEqual(len(found(text)), 1)

    def test_twenty_six_members_are_refused_in_groups_too(self):
        text = "struct A {\n" + "".join(f"\n    // Group.\n{members(9, 'g' + str(g))}" for g in range(3)) + "};\n"
        self.assertEqual(len(found(text)), 1)
        self.assertTrue(found(text)[0].startswith("src/a.h:1: A has 27 data members"), found(text))

    def test_only_data_members_count(self):
        text = """namespace n {
class A final : public B {
  public:
    using Id = int;
    explicit A(int a, int b) : a_{a}, list_(b) { list_ = 1; }
    ~A();
    int get() const { return a_; }
    A& operator=(const A&) = delete;
    static constexpr int most = 3;
    friend class C;
    enum class State : int { one, two };
    virtual void run(int) = 0;
    template <class T>
    void visit(T&& t) { t(a_); }

  private:
    struct Inner {
        int x = 0;
    } inner_;
    int a_ = 0, list_{2};
    void (*fire_)(int) = nullptr;
    std::function<void(int, int)> call_;
    std::map<int, std::pair<int, int>> map_;
    int guarded_ WEFT_GUARDED_BY(mutex_) = 0;
};
}  // namespace n
"""
        classes = {one.full: one for one in check_classes.parse("src/a.h", text)}
        self.assertEqual(classes["A"].count(), 7)
        self.assertEqual(classes["A::Inner"].count(), 1)
        self.assertTrue(classes["A"].is_interface)


class Circles(unittest.TestCase):
    def test_two_classes_that_hold_each_other_are_refused(self):
        for there, back in (("B", "A*"), ("std::unique_ptr<B>", "A&"), ("std::vector<B*>", "std::weak_ptr<A>")):
            text = f"class A {{\n    {there} b_;\n}};\nclass B {{\n    {back} a_;\n}};\n"
            self.assertEqual(len(found(text)), 1, text)
            self.assertIn("A -> B -> A", found(text)[0])

    def test_a_longer_circle_is_refused_once(self):
        text = "class A {\n    B* b_;\n};\nclass B {\n    C* c_;\n};\nclass C {\n    A& a_;\n};\n"
        self.assertEqual(len(found(text)), 1)

    def test_an_interface_ends_a_circle(self):
        text = ("class Host {\n  public:\n    virtual void run() = 0;\n\n  private:\n    B b_;\n};\n"
                "class B {\n    Host& host_;\n};\n")
        self.assertEqual(found(text), [])

    def test_a_record_belongs_to_its_table(self):
        self.assertEqual(found("struct Entry {\n    Table* table;\n};\nclass Table {\n    Slots<Entry> all_;\n};\n"), [])

    def test_a_record_hides_no_circle_of_two_classes(self):
        text = "struct Entry {\n    B* b;\n};\nclass A {\n    Slots<Entry> all_;\n};\nclass B {\n    A& a_;\n};\n"
        self.assertEqual(len(found(text)), 1)

    def test_the_parameters_of_a_callable_are_not_held(self):
        self.assertEqual(found("class A {\n    B b_;\n};\nclass B {\n    Function<void(A&)> done_;\n};\n"), [])


if __name__ == "__main__":
    unittest.main()
