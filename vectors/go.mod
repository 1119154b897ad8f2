module github.com/nodeattest/nodeattest/vectors

go 1.26.0
