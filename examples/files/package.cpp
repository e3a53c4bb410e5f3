// A compiled archive in C++: it chooses and learns.
//
//     python -c "from torchonline import OFUL; from torchonline.export import compile_program, to_archive; compile_program(to_archive(OFUL(2)), 'oful.pt2')"
//     python -c "import torch; torch.save({'inputs': torch.rand(9, 3, 2).double(), 'rewards': torch.rand(9, 3).double()}, 'rounds.pt')"
//     Compile it as script.cpp says.
//     ./package oful.pt2 rounds.pt
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/serialization/pickle.h>

using Tensors = std::vector<at::Tensor>;

// A policy of a compiled archive: its functions, and the state between calls.
struct Policy {
    torch::inductor::AOTIModelPackageLoader selects, steps;
    Tensors state;

    explicit Policy(const std::string& path) : selects(path, "select"), steps(path, "step") {
        state = torch::inductor::AOTIModelPackageLoader(path, "start").run({});
    }

    // The choice of each of N decisions; -1 if there is nothing to choose.
    at::Tensor select(const Tensors& inputs, const at::Tensor& mask) {
        Tensors all = state;
        all.insert(all.end(), inputs.begin(), inputs.end());
        all.push_back(mask);
        return selects.run(all)[0];
    }

    // Whether the round was learnt. A refused round changes nothing.
    bool step(const Tensors& inputs, const at::Tensor& action, const at::Tensor& reward) {
        Tensors all = state;
        all.insert(all.end(), inputs.begin(), inputs.end());
        all.insert(all.end(), {action, reward});
        Tensors found = steps.run(all);
        state.assign(found.begin() + 1, found.end());
        return found[0].item<bool>();
    }
};

int main(int count, char** words) {
    if (count != 3) {
        std::cerr << "usage: package FILE ROUNDS\n";
        return 2;
    }
    at::set_num_threads(1);
    c10::InferenceMode no_gradients;
    Policy policy(words[1]);
    // What torch.save writes of a dict: `rewards` (T, K), NaN where one is missing, and `inputs` (T, ...), unless the arms are fixed.
    std::ifstream file(words[2], std::ios::binary);
    std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    auto rounds = torch::jit::pickle_load(bytes).toGenericDict();
    auto rewards = rounds.at("rewards").toTensor();
    bool has_inputs = rounds.contains("inputs");
    for (int64_t t = 0; t < rewards.size(0); ++t) {
        Tensors decision, past;
        auto mask = at::ones({rewards.size(1)}, at::kBool);
        if (has_inputs) {
            past = {rounds.at("inputs").toTensor()[t].clone()};
            decision = {past[0].unsqueeze(0)};  // one decision
            mask = mask.unsqueeze(0);
        }
        int64_t k = policy.select(decision, mask).item<int64_t>();
        int64_t action = std::max<int64_t>(k, 0);
        bool learnt = policy.step(past, at::scalar_tensor(action, at::kLong), rewards[t][action].clone());
        std::cout << k << " " << learnt << "\n";
    }
}
