// What people and files say: addresses, group files, WEFT_ variables.
#include <string>

#include <weft/group.h>

#include "api/environment.h"
#include "fuzz/fuzz.h"
#include "na/address.h"

using namespace weft;
using fuzz::must;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::uint8_t which = input.byte();
    std::string text(as_text(input.rest()));
    switch (which % 3) {
        case 0: {
            const Result<na::Address> address = na::parse_address(text);
            if (!address) break;
            const Result<na::Address> again = na::parse_address(address->uri());
            must(again.ok() && *again == *address, "an address is what it prints");
            break;
        }
        case 1: {
            const Result<GroupView> view = GroupView::parse(text);
            if (view) must(view->size() > 0, "a group has members");
            break;
        }
        default: {
            text = "WEFT_" + text.substr(0, text.find('\0'));
            char* environment[] = {text.data(), nullptr};
            const Result<RuntimeOptions> options = api::overlay_environment({}, environment);
            if (options)
                must(api::judge(*options).ok(), "what a variable may say is a good option");
        }
    }
    return 0;
}
