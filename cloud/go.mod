module github.com/nodeattest/nodeattest/cloud

go 1.26.0

replace github.com/nodeattest/nodeattest => ../
