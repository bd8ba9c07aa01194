module weir.example/passes

go 1.19
