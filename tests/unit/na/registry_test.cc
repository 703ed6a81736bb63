#include "na/registry.h"

#include "support/catch.h"

using namespace weft;
using namespace weft::na;

namespace {

class NamedProvider final : public Provider {
  public:
    explicit NamedProvider(std::string_view scheme) : scheme_(scheme) {}
    std::string_view scheme() const override { return scheme_; }
    Diagnosis probe() override { return {}; }
    Result<std::unique_ptr<Endpoint>> open(const Address*, EndpointParts, TimePoint) override {
        return fail(Code::unavailable, "only a name");
    }

  private:
    std::string_view scheme_;
};

}  // namespace

TEST_CASE("a provider is found by its scheme") {
    Registry registry;
    registry.add(std::make_unique<NamedProvider>("sm"));
    registry.add(std::make_unique<NamedProvider>("ofi+tcp"));
    CHECK(registry.all().size() == 2);
    const Result<Provider*> found = registry.find("ofi+tcp");
    REQUIRE(found);
    CHECK(*found == registry.all()[1].get());
}

TEST_CASE("a transport that is not built in is refused with a list of those that are") {
    Registry registry;
    registry.add(std::make_unique<NamedProvider>("sm"));
    registry.add(std::make_unique<NamedProvider>("sim"));
    for (const char* scheme : {"verbs", "s", "smm", ""}) {
        const Result<Provider*> found = registry.find(scheme);
        REQUIRE_FALSE(found);
        CHECK(found.status().code() == Code::unimplemented);
        CHECK(found.status().text() ==
              "this runtime has no transport '" + std::string(scheme) + "'; available: sm, sim");
    }
}
