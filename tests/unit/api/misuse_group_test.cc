// A collective without a completion ends the program with the name of the call, in a child process.
#include <csignal>
#include <functional>

#include <weft/runtime.h>
#include <weft/subgroup.h>

#include "support/child.h"
#include "support/raw_echo.h"

namespace misuse_group_test {

using namespace weft;
using namespace weft::test;

// Starts it on a group of one member, or on a subgroup of it.
template <class Start>
void check_refused(const char* name, std::vector<std::string> words, Start start) {
    const auto make = [start] {
        RuntimeOptions options;
        options.log_level = LogLevel::off;
        options.manual = true;
        Runtime runtime = Runtime::create(options).value();
        const GroupView view =
            GroupView::make("g", 1, {{.rank = 0, .uris = {"sm://absent"}}}).value();
        const Group group = runtime.group(view).value();
        start(group, Subgroup::make(group, RankSet{0}).value());
        return 0;
    };
    check_mistake(name, make, -SIGABRT, words);
}

TEST_CASE("an empty completion of a collective is refused with the name of the call") {
    check_refused("of a group", {"Group::collective()", "completion"},
                  [](const Group& group, const Subgroup&) {
                      group.collective(echo_method, {}, {}, nullptr);
                  });
    check_refused("of a subgroup", {"weft::Subgroup", "completion"},
                  [](const Group&, const Subgroup& subgroup) {
                      subgroup.collective(echo_method, {}, {}, nullptr);
                  });
    check_refused(
        "of a gather", {"weft::Subgroup", "completion"},
        [](const Group&, const Subgroup& subgroup) { subgroup.all_gather("g", {}, {}, nullptr); });
    check_refused("of a scatter", {"Subgroup::scatter()", "completion"},
                  [](const Group&, const Subgroup& subgroup) {
                      subgroup.scatter(echo_method, {}, {}, nullptr);
                  });
}

}  // namespace misuse_group_test
