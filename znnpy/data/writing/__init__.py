"""Outputs: whole arrays, and files written block by block so that a killed process can go on.

`destination` says where, `contract` what is written and what every format fulfils, `journaled` what all
formats share, `outputs.open_output` opens one by its suffix; `preflight` refuses before anything is
computed, `standing` says what a dry run would find.
"""
