# `make demo` and `make test` are all the set-up there is.
PYTHON ?= python3.11
BIN := .venv/bin
DEMO := runs/demo
BOOKS := tests/data/books/*.txt

.PHONY: demo test lint clean

.venv/.runtime: requirements.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --requirement requirements.txt
	touch $@

.venv/.dev: .venv/.runtime
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: .venv/.runtime
	$(BIN)/python data_prep/train_vocab.py --flagfile=configs/vocab_demo.flags --input_file='$(BOOKS)' --output_dir=$(DEMO)/vocab
	$(BIN)/python data_prep/create_pretraining_data.py --flagfile=configs/records_demo.flags --input_file='$(BOOKS)' \
	  --spm_model_file=$(DEMO)/vocab/spiece.model --output_dir=$(DEMO)/records
	$(BIN)/python -m albert_tf.run_pretraining --flagfile=configs/pretrain_demo.flags \
	  --input_file='$(DEMO)/records/train-*.tfrecord' --eval_input_file='$(DEMO)/records/eval-*.tfrecord' \
	  --output_dir=$(DEMO)/model --export_dir=$(DEMO)/export

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest --numprocesses=2 --dist=loadfile

clean:
	rm -rf .venv runs
