// Use of the value of a failed Result ends the program with the status. Each in a child process.
#include <string>

#include <weft/result.h>

#include "support/child.h"

namespace weft::misuse_result_test {
namespace {

struct Use {
    const char* words;
    std::function<void(Result<std::string>&)> use;
};

TEST_CASE("misuse: the value of a Result that failed ends the program with its status") {
    using Given = Result<std::string>;
    for (const Use& use : std::vector<Use>{
             {"operator*", [](Given& given) { (*given).clear(); }},
             {"operator*", [](Given& given) { (void)(*std::as_const(given)).size(); }},
             {"operator*", [](Given& given) { const std::string taken = *std::move(given); }},
             {"operator->", [](Given& given) { given->clear(); }},
             {"operator->", [](Given& given) { (void)std::as_const(given)->size(); }},
         }) {
        test::check(
            {use.words,
             [&use] {
                 Given given = fail(Code::not_found, "no file");
                 use.use(given);
             },
             {std::string("weft: ") + use.words + " of a Result that failed: NOT_FOUND: no file",
              "; compare ok() before, or take value(), which throws\n"}});
        Given good(std::string("value"));
        use.use(good);
    }
}

}  // namespace
}  // namespace weft::misuse_result_test
