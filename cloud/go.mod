module github.com/nodeattest/nodeattest/cloud

go 1.26.0

replace github.com/nodeattest/nodeattest => ../

require (
	github.com/nodeattest/nodeattest v0.0.0
	golang.org/x/crypto v0.58.0
)
