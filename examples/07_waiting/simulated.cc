// Hedged reads and work under a lease, on simulated hosts with links that are cut and a host that
// pauses: some twenty seconds of virtual time, the same in every run.
#include <iostream>

#include <weft/sim.h>

#include "hedge.h"
#include "lease.h"

using namespace weft;

struct Replica final : demo::BlobsService {
    std::string name;
    Task<Status> Read(Call&, const demo::BlobName& in, demo::Blob& out) override {
        if (Status slept = co_await sleep_for(2ms); !slept.ok()) co_return slept;
        out.set_data(in.name() + " of " + name);
        co_return Status();
    }
};

struct Leases final : demo::LeasesService {
    std::string holder;
    TimePoint end{};
    Status Take(Call&, const demo::Claim& in, demo::Term&) override {
        if (in.holder() != holder && now() < end) {
            return rejected(Code::already_exists, holder + " has it");
        }
        holder = in.holder();
        end = now() + lease_time;
        return {};
    }
};

// State that the program observes from outside of the simulated hosts.
struct Seen {
    TimePoint start{};
    int at_work = 0;
    bool were_two_at_work = false;

    void say(const std::string& what) const {
        std::cout << (now() - start) / 100ms * 100 << " ms: " << what << std::endl;
    }
};

struct AtWork {
    AtWork(Seen& by, std::string holder) : seen(by), name(std::move(holder)) {
        seen.were_two_at_work |= ++seen.at_work > 1;
        seen.say(name + " works");
    }
    ~AtWork() {
        --seen.at_work;
        seen.say(name + " stops");
    }
    Seen& seen;
    const std::string name;
};

Task<void> read_each_second(Channel near, Channel far, Seen& seen) {
    demo::BlobName name;
    name.set_name("blob");
    while (true) {
        const Result<demo::Blob> blob = co_await hedged_read(near, far, name);
        seen.say(blob ? blob->data() : blob.status().to_string());
        if (Status slept = co_await sleep_for(1s); !slept.ok()) co_return;
    }
}

Task<Status> work(Seen& seen, std::string name) {
    const AtWork here(seen, name);
    co_return co_await sleep_for(4s);
}

Task<void> work_when_leased(Channel server, Seen& seen, std::string name) {
    demo::Claim claim;
    claim.set_holder(name);
    while (true) {
        const Status done = co_await with_lease(server, claim, work(seen, name));
        if (Status slept = co_await sleep_for(100ms); !slept.ok() || done.ok()) co_return;
    }
}

template <class Service>
sim::Simulation::Program serves(const std::string& name, std::shared_ptr<Service> service) {
    return [=](Runtime& runtime) {
        if (Status status = runtime.serve(*service, "sim://" + name); !status.ok())
            throw BadResult(status);
        return service;
    };
}

int main() {
    Seen seen;
    sim::Simulation world(1);
    seen.start = world.now();
    for (const char* name : {"near", "far"}) {
        const auto replica = std::make_shared<Replica>();
        replica->name = name;
        world.add(name, serves(name, replica));
    }
    const auto leases = std::make_shared<Leases>();
    world.add("leases", serves("leases", leases));
    world.add("reader", [&](Runtime& runtime) {
        runtime.spawn(read_each_second(runtime.connect("sim://near").value(),
                                       runtime.connect("sim://far").value(), seen));
        return nullptr;
    });
    const auto add_worker = [&](const char* name) {
        world.add(name, [&, name](Runtime& runtime) {
            const Channel server = runtime.connect("sim://leases").value();
            runtime.spawn(work_when_leased(server, seen, name));
            return nullptr;
        });
    };
    for (const char* name : {"ada", "ben"}) {
        add_worker(name);
        world.run_for(50ms);  // This worker starts first, so it gets the lease first.
    }
    world.in(1500ms, [&] { world.cut("near", "reader"); });
    world.in(2500ms, [&] { world.cut("ada", "leases"); });
    world.in(3500ms, [&] { world.heal(); });
    world.run_for(12s);
    // This worker pauses while it holds the lease, and resumes when another worker holds it.
    add_worker("cleo");
    world.run_until([&] { return leases->holder == "cleo"; }, 1s);
    world.pause("cleo");
    add_worker("dan");
    world.in(1500ms, [&] { world.resume("cleo"); });
    world.run_for(10s);
    std::cout << (seen.were_two_at_work ? "two workers at once" : "one at a time") << std::endl;
    return seen.were_two_at_work ? 1 : 0;
}
