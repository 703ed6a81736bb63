// A program that does not link weft loads plugins that do.
#include <dlfcn.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "plugin.h"
#include "support/catch.h"

namespace {

class Plugin {
  public:
    explicit Plugin(std::string name) : name_(std::move(name)) {}

    void load() {
        handle_ = ::dlopen(("libweft_plugin_" + name_ + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!handle_) FAIL(::dlerror());
        succeeds(find<decltype(&plugin_reflect)>("plugin_reflect")());
        const std::string at = "plugin-" + name_ + "-" + std::to_string(::getpid());
        succeeds(
            find<decltype(&plugin_start)>("plugin_start")(at.c_str(), tcp_uri_, sizeof tcp_uri_));
        sm_uri_ = "sm://" + at;
    }
    void call(const Plugin& other) const {
        const auto call = find<decltype(&plugin_call)>("plugin_call");
        succeeds(call(other.sm_uri_.c_str(), other.name_.c_str()));
        succeeds(call(other.tcp_uri_, other.name_.c_str()));
    }
    void unload() {
        find<decltype(&plugin_stop)>("plugin_stop")();
        CHECK(::dlclose(handle_) == 0);
    }

  private:
    template <class Function>
    Function find(const char* name) const {
        void* const found = ::dlsym(handle_, name);
        if (!found) FAIL(::dlerror());
        return reinterpret_cast<Function>(found);
    }
    static void succeeds(const char* wrong) {
        if (wrong) FAIL(wrong);
    }

    std::string name_, sm_uri_;
    char tcp_uri_[128] = {};
    void* handle_ = nullptr;
};

void call_each_other(const std::vector<Plugin>& plugins) {
    for (const Plugin& caller : plugins) {
        for (const Plugin& server : plugins) caller.call(server);
    }
}

}  // namespace

TEST_CASE("plugins: two plugins that link weft serve and call themselves and each other") {
    std::vector<Plugin> plugins{Plugin("one"), Plugin("two")};
    for (Plugin& plugin : plugins) plugin.load();
    call_each_other(plugins);
    for (Plugin& plugin : plugins) plugin.unload();
}

TEST_CASE("plugins: one plugin is unloaded and loaded again while the other one serves") {
    std::vector<Plugin> plugins{Plugin("two"), Plugin("one")};
    for (Plugin& plugin : plugins) plugin.load();
    call_each_other(plugins);
    plugins.front().unload();
    plugins.back().call(plugins.back());
    plugins.front().load();
    call_each_other(plugins);
    for (Plugin& plugin : plugins) plugin.unload();
}
