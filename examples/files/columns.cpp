// Rows of a table in C++, by the TorchScript file of a head with a ColumnEncoder: values by name, then codes, then a choice.
//
//     python -c "from torchonline.models import table_head; from torchonline.export import to_torchscript;
//         to_torchscript(table_head({'age': 'number', 'country': 'category'}, actions=2), 'head.pt')"
//     TORCH=$(python -c "import os, torch; print(os.path.dirname(torch.__file__))")
//     g++ -std=c++20 -O2 -I$TORCH/include -I$TORCH/include/torch/csrc/api/include columns.cpp -o columns \
//         -L$TORCH/lib -ltorch -ltorch_cpu -lc10 -Wl,-rpath,$TORCH/lib
//     ./columns head.pt < rows.txt > choices.txt
//
// A line of rows.txt is a value: "n age 31" or "t country CH". Within a text, "\n" is a line break, "\\" a backslash, and "\0" the
// character zero. An empty line ends a row. A line of choices.txt has the bits of the codes, in hexadecimal, and the choice.
#include <ATen/Parallel.h>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <string>
#include <torch/script.h>

std::string unescaped(const std::string& text) {
    std::string found;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\\') {
            found += text[i];
        } else {
            ++i;
            found += text[i] == 'n' ? '\n' : text[i] == '0' ? '\0' : text[i];
        }
    }
    return found;
}

int main(int count, char** words) {
    if (count != 2) {
        std::cerr << "usage: columns FILE < ROWS\n";
        return 2;
    }
    at::set_num_threads(1);
    c10::InferenceMode no_gradients;
    torch::jit::Module head = torch::jit::load(words[1]);
    auto lookup = head.attr("encoder").toModule().get_method("lookup_row");
    auto select = head.get_method("select");
    c10::Dict<std::string, double> numbers;
    c10::Dict<std::string, std::string> texts;
    for (std::string line; std::getline(std::cin, line);) {
        if (!line.empty()) {
            size_t space = line.find(' ', 2);
            std::string name = line.substr(2, space - 2), value = line.substr(space + 1);
            if (line[0] == 'n') {
                numbers.insert(name, std::stod(value));
            } else {
                texts.insert(name, unescaped(value));
            }
            continue;
        }
        auto codes = lookup({numbers, texts}).toTensor();
        for (int64_t i = 0; i < codes.size(0); ++i) {
            double code = codes[i].item<double>();
            uint64_t bits;
            std::memcpy(&bits, &code, sizeof bits);
            std::cout << std::hex << bits << std::dec << ' ';
        }
        std::cout << select({codes}).toTensor().item<int64_t>() << "\n";
        numbers.clear();
        texts.clear();
    }
}
