module x
go 1.25
