module metadata

go 1.19
